A=x; A+=y; A+="z $A"
LIST=(1); LIST[0]+=2
python3 -m verl.trainer.main_ppo a="$A" l=${LIST[0]}
