"""JSON lines to rows: blocks of lines by Arrow and msgspec, single lines by the definition of accepted values.

Ways to decode a block, from the cheapest to the last. A way decodes lines or refuses the whole block; the next way
gets a refused block. Lines that a way leaves undecoded go to the last way.

======================  ==================================  ===========  ======================================
way                     taken when                          CPU ms/MB    behind it
======================  ==================================  ===========  ======================================
1 whole block           Arrow reads every column in place   6            refused: way 2, or way 3 for parsed
  `arrow_reader`                                                         objects; a value out of range leaves
                                                                         its line to way 4
2 nested values         way 1 refused a block, or the       7 to 20      of each line that msgspec parses: maps,
  extracted             schema has maps or structs with                  structs and texts are blocks of their
  `extract_nested`      texts or times                                   own for way 1 or 2, the other columns a
                                                                         block for way 1 or 3; other lines: way 4
3 bad-line search       way 1 refused parsed objects        0.3 ms for   stretches of lines that Arrow accepts are
  `bad_line_search`                                         a bad line   decoded; lines around a refusal: way 4
4 line by line          a line is left                      500          a value, or the reason of a rejection
  `line_by_line`
======================  ==================================  ===========  ======================================

`ways.decode_block` tries ways 1 to 3 for one block, top to bottom. It calls itself for blocks of nested values only,
so its depth is the depth of the schema's types. `decoder.JsonDecoder` gives the lines that are left to way 4.
All ways accept the same lines and give the same values: the result does not show which one was taken.
"""
