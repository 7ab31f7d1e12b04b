shopt -s extglob
V=v1.2.3
case $V in v+([0-9]).*) K=yes ;; *) K=no ;; esac
[[ $V == @(v1|v2).* ]] && L=yes
python3 -m verl.trainer.main_ppo k=$K l=$L m=${V##+([a-z])}
