# Two tables: each ability and whether each kernel offers it; and why not, where it does not.
def pad($width): . + " " * ([0, $width - length] | max);
def row: "| " + join(" | ") + " |";
# Who else uses DAMON is the state of a machine, not of its kernel.
def word:
  if .here == true then "yes"
  elif .here == null then "not known"
  elif .why | startswith("DAMON is in use") then "in use"
  else "no" end;

[inputs | capture("^(?<release>[^ ]+) (?<report>.*)$")
    | {series: ("Linux " + (.release | split(".")[:2] | join("."))), abilities: (.report | fromjson.abilities)}] as $kernels
| [$kernels[0].abilities[].name] as $names
| ($names | map(length) | max) as $width
| (["ability" | pad($width)] + [$kernels[].series | pad(10)] | row),
  ([$width + 2, ($kernels[] | 12)] | map("-" * .) | "|" + join("|") + "|"),
  ($names[] as $name
    | [$name | pad($width)] + [$kernels[].abilities[] | select(.name == $name) | word | pad(10)] | row),
  "",
  (["missing" | pad($width), ("on" | pad(10)), "because"] | row),
  ([$width + 2, 12, 9] | map("-" * .) | "|" + join("|") + "|"),
  ($names[] as $name | $kernels[] | .series as $series | .abilities[]
    | select(.name == $name and .here != true) | [(.name | pad($width)), ($series | pad(10)), .why] | row)
