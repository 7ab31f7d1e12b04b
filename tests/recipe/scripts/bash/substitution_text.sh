L=0,1,2,3
N=$(echo $L | tr ',' '\n' | wc -l)
F=$(echo $L | cut -d, -f2)
python3 -m verl.trainer.main_ppo n=$N f=$F u=$(echo abc | tr a-z A-Z) e=$(expr 3 + 4)
