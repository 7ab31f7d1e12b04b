A=5; S=abc
if [ "$A" -gt 3 ] && [ ! -z "$S" ]; then R1=y; fi
if [[ $S == a* && $A -le 5 ]]; then R2=y; fi
if [[ $S != "a*" ]]; then R3=y; fi
if [ "$S" = abc -a "$A" -eq 5 ]; then R4=y; fi
if [[ ! ( $A -lt 3 || $S = x ) ]]; then R5=y; fi
if test -n "$S"; then R6=y; elif false; then R6=n; else R6=m; fi
python3 -m verl.trainer.main_ppo $R1 $R2 $R3 $R4 $R5 $R6
