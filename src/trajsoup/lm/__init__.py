"""The language model: corpus, tokenizer, tasks, scores. The only layer that may load torch and transformers."""
