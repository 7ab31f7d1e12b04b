python3 -m verl.trainer.main_ppo \
a=1 \
b=2\
c \
d=4
