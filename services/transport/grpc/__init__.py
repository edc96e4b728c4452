"""gRPC behind the seams: bulk streams (`data`), calls to the coordinator (`control`), credentials (`channels`).

Nothing outside this package and the `service.py` files knows gRPC; its errors leave as ours.
"""
