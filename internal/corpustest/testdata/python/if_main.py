def main():
    print("main ran")
    return 3

if __name__ == "__main__":
    raise SystemExit(main())
