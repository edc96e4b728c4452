"""Comparison of runs with each other and with published series: `ensayo compare`.

lines     speedup curves of runs and of public results, in the same terms
alike     settings in which runs differ, so that their times and losses cannot be ranked
figures   figures that show the curves of all runs together
changes   table of the differences between two runs
page      output folder: report.html and figures
"""
