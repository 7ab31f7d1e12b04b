"""What sglang/srt/layers/sampler.py imports of flashinfer.sampling."""

from flashinfer import missing

min_p_sampling_from_probs = missing("flashinfer.sampling.min_p_sampling_from_probs")
top_k_top_p_sampling_from_probs = missing("flashinfer.sampling.top_k_top_p_sampling_from_probs")
