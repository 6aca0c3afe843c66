"""Dead letters: bad records put into a Hudi table or a Kafka topic of their own, once the quarantine has them."""
