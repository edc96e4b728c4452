"""Runs over each other, and over published series: `ensayo compare`.

lines     one way to scale, of a run or of public results, in the same terms
figures   the overlays
page      the folder: report.html, figures
"""
