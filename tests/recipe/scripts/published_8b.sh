#!/usr/bin/env bash
# The constructs and the faults of a published four-node page, in a script of our own.
set -x
export GLOBAL_PROFILER_TOOL=torch
export MCCL_SOCKET_IFNAME=bond0
cp /data/patches/megatron_actor.py /home/verl/verl/workers/actor/megatron_actor.py

MODEL=${MODEL:-/data/models/Qwen3-8B}
NNODES=${NNODES:-4}
BATCH=64
RECOMPUTE=48

python3 -u -m verl.trainer.main_ppo \
    --config-path=/data/config \
    --config-name=ppo_megatron_trainer_demo.yaml \
    data.train_files=/data/train.parquet \
    data.val_files=/data/aime.parquet \
    data.train_batch_size=${BATCH} \
    data.max_prompt_length=1024 \
    data.max_response_length=16384 \
    actor_rollout_ref.model.path=$MODEL \
    actor_rollout_ref.actor.ppo_mini_batch_size=$BATCH \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=34816 \
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size=1 \
    actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=8 \
    actor_rollout_ref.actor.megatron.use_mbridge=False \
    actor_rollout_ref.actor.megatron.use_dist_checkpointing=True \
    actor_rollout_ref.actor.megatron.dist_checkpointing_path=/data/mcore/Qwen3-8B \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method=uniform \
    +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers=$RECOMPUTE \
    # the reference model \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.ref.megatron.expert_model_parallel_size=8 \
    actor_rollout_ref.rollout.name=sglang \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    actor_rollout_ref.rollout.data_parallel_size=16 \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.val_kwargs.temperature=0.8 \
    actor_rollout_ref.rollout.val_kwargs.top_k=100 \
    actor_rollout_ref.rollout.val_kwargs.n=1 \
    algorithm.adv_estimator=grpo \
    trainer.device=musa \
    trainer.nnodes=$NNODES \
    trainer.n_gpus_per_node=8 \
    trainer.test_freq=5 \
    trainer.default_local_dir=/data/checkpoints
