"""What sglang/srt/layers/attention/vision.py imports of flashinfer.prefill."""

from flashinfer import missing

cudnn_batch_prefill_with_kv_cache = missing("flashinfer.prefill.cudnn_batch_prefill_with_kv_cache")
