python3 -m verl.trainer.main_ppo +a.b=1 ++c.d=2 ~e.f '~g' "+h='x y'" i@j=k +l.m="{p: 1, q: [2, 3]}"
