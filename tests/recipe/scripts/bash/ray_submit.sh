ray job submit --address=http://127.0.0.1:8265 --runtime-env-json='{"working_dir": "."}' \
  --no-wait -- python3 -m verl.trainer.main_ppo \
  a=1 \
  b=2
