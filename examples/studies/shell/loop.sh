# Adds 1 to n with a loop; logs go to standard error.
n=$(sed 's/.*"upto":\([0-9]*\).*/\1/')
echo "adding up to $n" >&2
total=0
i=1
while [ "$i" -le "$n" ]; do
    total=$((total + i))
    i=$((i + 1))
done
echo "{\"output\": {\"total\": $total}, \"metrics\": {\"primary_outcome\": $total}}"
