"""What the tests share: a real broker, a producer, processes to kill, readers."""
