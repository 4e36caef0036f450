import decimal, fractions, math
print(decimal.Decimal("1.1") + decimal.Decimal("2.2"), fractions.Fraction(1, 3) + 1, math.pi, 0.1 + 0.2, 10 ** 30, 7 // -2, -7 % 3)
