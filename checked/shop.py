def total(prices):
    return sum(price)
