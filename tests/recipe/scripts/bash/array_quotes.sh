A=("a=1 2" 'b=["x","y"]' c=\"3\")
python3 -m verl.trainer.main_ppo "${A[@]}" ${A[0]} "${A[*]}"
