# corpus: {"env": {"PYTHONWARNINGS": "error"}}
import warnings
warnings.warn("becomes an error")
