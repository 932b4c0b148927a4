"""Keys of ``config.json`` that say nothing about the logits of a text."""

from __future__ import annotations

from typing import Any

IDLE = frozenset({
    # What the file is, and what the weights were stored with.
    "architectures", "auto_map", "dtype", "model_type", "name_or_path", "torch_dtype",
    "initial_context_length", "transformers_version", "unsloth_fixed", "unsloth_version",
    # Training.
    "attention_dropout", "classifier_dropout", "embd_pdrop", "embedding_dropout", "hidden_dropout",
    "initializer_range", "output_router_logits", "pretraining_tp", "resid_pdrop",
    "residual_dropout", "router_aux_loss_coef", "router_jitter_noise",
    # How a library runs it.
    "attn_implementation", "cache_implementation", "experts_implementation", "output_attentions",
    "output_hidden_states", "return_dict", "torchscript", "transformers.js_config", "use_bfloat16",
    "use_cache",
    # Tokens, and how answers are drawn.
    "bad_words_ids", "begin_suppress_tokens", "bos_token_id", "decoder_start_token_id",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
    "eos_token_id", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "pad_token_id",
    "prefix", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate",
    "sep_token_id", "suppress_tokens", "temperature", "tokenizer_class", "top_k", "top_p",
    "typical_p",
    # Heads for other tasks.
    "finetuning_task", "id2label", "label2id", "num_labels", "problem_type",
    "task_specific_params",
    # Images and sound, which are not built.
    "audio_config", "audio_token_id", "boa_token_id", "boa_token_index", "boi_token_id",
    "boi_token_index", "eoa_token_id", "eoa_token_index", "eoi_token_id", "eoi_token_index",
    "image_token_id", "image_token_index", "mm_tokens_per_image", "video_token_id",
    "vision_config", "vision_soft_tokens_per_image",
})  # fmt: skip

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "attention_bias": (False,),
    "chunk_size_feed_forward": (0,),
    "is_decoder": (False, True),
    "full_attn_mod": (1,),
    "interpolate_factor": (1,),
    "is_encoder_decoder": (False,),
    "is_llama_config": (False, True),
    "lm_head_bias": (False,),
    "mlp_bias": (False,),
    "mlp_type": ("default",),
    "norm_type": ("layer_norm",),
    "pruned_heads": ({},),
    "rope_interleaved": (False,),
    "tf_legacy_loss": (False,),
    "tie_encoder_decoder": (False,),
    # Gemma: images alone see ahead.
    "use_bidirectional_attention": (False, "vision"),
    "use_mrope": (False,),
    "use_sliding_window": (False,),
}
"""Values at which keys that change the function do not."""
