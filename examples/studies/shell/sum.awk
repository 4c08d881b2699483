# Adds 1 to n by Gauss's rule.
{
    match($0, /"upto":[0-9]+/)
    n = substr($0, RSTART + 7, RLENGTH - 7)
    total = n * (n + 1) / 2
    printf "{\"output\": {\"total\": %d}, \"metrics\": {\"primary_outcome\": %d}}\n", total, total
}
