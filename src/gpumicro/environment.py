def collect():
    return {"python": "3"}
