"""A sink and a store on SQLite: what a package of its own brings to Tideline."""
