"""ensayo"""
