"""Bandwidth that DiLoCo needs for a compute utilisation of 95 %, beside the values that its authors published."""
