"""Users' training commands on the host.

references    files and interpreter of a command, resolved when a scenario is loaded
environments  virtual environments made of requirements files
images        images of users: checks and facts
image_programs  programs in throw-away containers of an image
dry_run       one process that counts the collectives of a step, without a network
interpreter   facts about a Python interpreter of the user
packages      packages that a command needs, and that its interpreter lacks
limits        what engines can and can't do with a command
"""
