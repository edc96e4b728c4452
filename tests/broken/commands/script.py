print("accuracy=0.5")
