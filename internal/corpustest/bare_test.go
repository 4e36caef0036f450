package corpustest

const bareVariable = "AUREA_TEST_BARE"

func bareInit(string) int { return 1 }
