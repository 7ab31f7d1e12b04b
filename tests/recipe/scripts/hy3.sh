#!/usr/bin/env bash
# A launch script of our own with the constructs and the values of the published Hy3 one.
set -xeuo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1

backend=${INFER_BACKEND:-vllm}
data_dir=${DATA_DIR:-"$PWD"}
gpus=${NGPUS_PER_NODE:-${GPUS_PER_NODE:-8}}
train=${TRAIN_FILES:-${DAPO_TRAIN:-${data_dir}/DAPO-Math-17k/dapo-math-17k.parquet}}
batch=${TRAIN_BATCH_SIZE:-128}
prompt=${MAX_PROMPT_LENGTH:-2048}
response=${MAX_RESPONSE_LENGTH:-8192}
threshold=${THRESHOLD:-0.5_4.0}
pp=${ACTOR_PP:-16}
vpp=${ACTOR_VPP:-null}
cp=${ACTOR_CP:-8}
ref_pp=${REF_PP:-${pp}}
offload=${ALL_OFFLOAD:-True}

[ "${pp}" -gt 1 ] && vpp_override=${vpp} || vpp_override=null

TRANSFORMER=actor_rollout_ref.actor.megatron.override_transformer_config

REWARD=(
    reward_model.reward_manager=dapo
    +reward_model.reward_kwargs.overlong_buffer_cfg.enable=True
    +reward_model.reward_kwargs.overlong_buffer_cfg.len=4096
    +reward_model.reward_kwargs.max_resp_len=${response}
)

DATA=(
    data.train_files="$train"
    data.train_batch_size=${batch}
    data.max_prompt_length=${prompt}
    data.max_response_length=${response}
    data.filter_overlong_prompts=False
    data.truncation=left
    data.return_raw_chat=True
    data.trust_remote_code=True
)

ACTOR=(
    algorithm.adv_estimator=grpo
    algorithm.norm_adv_by_std_in_grpo=False
    algorithm.rollout_correction.rollout_is=token
    algorithm.rollout_correction.rollout_is_threshold=${threshold}
    actor_rollout_ref.model.path=tencent/Hy3
    actor_rollout_ref.model.trust_remote_code=True
    actor_rollout_ref.model.use_fused_kernels=True
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.actor.ppo_mini_batch_size=128
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((3 * 10240))
    actor_rollout_ref.actor.use_kl_loss=True
    actor_rollout_ref.actor.kl_loss_coef=0.0
    actor_rollout_ref.actor.clip_ratio_high=0.28
    actor_rollout_ref.actor.clip_ratio_c=10.0
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean
    # Parallel sizes.
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=${pp}
    actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size=${vpp_override}
    actor_rollout_ref.actor.megatron.context_parallel_size=${cp}
    actor_rollout_ref.actor.megatron.expert_model_parallel_size=8
    actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1
    actor_rollout_ref.actor.megatron.param_offload=${offload}
    actor_rollout_ref.actor.megatron.optimizer_offload=${offload}
    actor_rollout_ref.actor.megatron.use_mbridge=True
    actor_rollout_ref.actor.megatron.vanilla_mbridge=False
    "+${TRANSFORMER}.recompute_granularity=full"
    "+${TRANSFORMER}.recompute_method=uniform"
    "+${TRANSFORMER}.recompute_num_layers=1"
    "+${TRANSFORMER}.moe_router_enable_expert_bias=True"
    "+${TRANSFORMER}.moe_router_bias_update_rate=0"
    "+${TRANSFORMER}.moe_router_load_balancing_type=none"
    "+${TRANSFORMER}.moe_grouped_gemm=True"
    actor_rollout_ref.ref.megatron.pipeline_model_parallel_size=${ref_pp}
    actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=40960
)

ROLLOUT=(
    actor_rollout_ref.rollout.name=${backend}
    actor_rollout_ref.rollout.tensor_model_parallel_size=16
    actor_rollout_ref.rollout.gpu_memory_utilization=0.65
    actor_rollout_ref.rollout.n=16
    actor_rollout_ref.rollout.calculate_log_probs=True
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=40960
    actor_rollout_ref.rollout.max_num_batched_tokens=10240
    actor_rollout_ref.rollout.max_model_len=10240
    actor_rollout_ref.rollout.temperature=0.9
    actor_rollout_ref.rollout.val_kwargs.do_sample=True
    actor_rollout_ref.rollout.val_kwargs.temperature=1.0
)

TRAINER=(
    trainer.logger='["console","wandb"]'
    trainer.n_gpus_per_node=${gpus}
    trainer.nnodes=16
    trainer.save_freq=20
    trainer.test_freq=10
    trainer.total_epochs=1000
    trainer.resume_mode=auto
)
TRAINER+=(model_engine=megatron)

python3 -m verl.trainer.main_ppo \
    "${REWARD[@]}" \
    "${DATA[@]}" \
    "${ACTOR[@]}" \
    "${ROLLOUT[@]}" \
    "${TRAINER[@]}" \
    "$@"
