"""JSON lines to rows: blocks of lines by Arrow and msgspec, single lines by the definition of accepted values.

The ways to decode a block, tried from top to bottom. A way decodes lines or refuses the whole block; a refused block
goes to the next way. Lines that a way leaves undecoded go to the last way. Costs are CPU ms/MB of lines of 150 bytes.

======================  ==================================  ===========  ======================================
way                     taken when                          cost         behind it
======================  ==================================  ===========  ======================================
1 whole block           Arrow reads every column in place   6            refused: way 2, or way 3 for parsed
  `arrow_reader`                                                         objects; a value out of range leaves
                                                                         its line to way 4
2 nested values         way 1 refused the block, or the     9 to 17      of each line that msgspec parses: maps,
  extracted             schema has maps, or structs with                 structs and texts are blocks of their
  `extract_nested`      times in them                                    own for way 1 or 2, the other columns
                                                                         a block for way 1 or 3; other lines:
                                                                         way 4
3 bad-line search       way 1 refused parsed objects        10, and      accepted lines are decoded together;
  `bad_line_search`                                         1 ms for     bad lines: way 4
                                                            a halving
4 line by line          a line is left                      430          a row, or a rejected line with the
  `line_by_line`                                                         reason
======================  ==================================  ===========  ======================================

`ways.decode_block` tries ways 1 to 3 for one block. It calls itself only for blocks of values that way 2 extracted, so
its depth is bounded by the depth of the schema's types. `decoder.JsonDecoder` gives the lines that are left to way 4.
All ways accept the same lines and give the same values: the result does not show which way decoded a line.
"""
