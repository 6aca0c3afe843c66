"""Real Hudi on Spark and on Flink: fetched into ``.peers/``, and the programs that run them."""
