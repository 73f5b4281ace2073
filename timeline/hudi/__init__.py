"""Hudi's timeline on storage: file names, bodies, archived and LSM timelines."""
