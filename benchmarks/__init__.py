"""How fast the mesh is, told as ratios to the smallest honest programs that do the same.

Times drift from machine to machine and from minute to minute; ratios of what runs side by side, in
turns, drift far less. Each figure here is the median of such ratios, with its quartiles.
"""
