true && A=1 || A=2
false && B=1 || B=2
! true || C=3
{ D=4; E=5; } && F=6
python3 -m verl.trainer.main_ppo a=$A b=$B c=${C:-0} d=$D e=$E f=$F
