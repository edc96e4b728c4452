"""Comparison of runs with each other and with published MLPerf results, for `ensayo compare`.

curves              speedup curves of runs and of published series, in a common format
differing_settings  settings in which runs differ; times and losses of such runs are not ranked
compared_curves     runs and curves that are drawn together, with their colours, markers and line styles
curve_tables        tables of the values that the figures show
overlays            figures that show the curves of all runs together
overlay_titles      titles and captions of these figures
run_changes         table of the differences between two runs
page                output folder: report.html and figures
"""
