import logging
logging.warning("to stderr")
logging.info("not shown")
logging.basicConfig(format="%(levelname)s %(name)s %(module)s %(lineno)d %(message)s", force=True)
logging.getLogger("x").error("shaped")
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("with a traceback")
