ARGS="data.max_prompt_length=2048 data.max_response_length=8192"
python3 -m verl.trainer.main_ppo $ARGS "$ARGS" x=$ARGS
