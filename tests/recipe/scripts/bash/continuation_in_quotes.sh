python3 -m verl.trainer.main_ppo "a=1 \
2" 'b=1 \
2' c=1\
2
