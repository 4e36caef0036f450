import unittest
class T(unittest.TestCase):
    def test_good(self):
        self.assertEqual(1, 1)
    def test_bad(self):
        self.assertEqual([1, 2], [1, 3])
    @unittest.skip("later")
    def test_skip(self):
        pass
unittest.main(verbosity=2)
