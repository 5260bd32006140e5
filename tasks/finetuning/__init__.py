"""Classes of texts and choices among answers: GLUE, RACE, CommonsenseQA, by encoders that are pre-trained or not."""
