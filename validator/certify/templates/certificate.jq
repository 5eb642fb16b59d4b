{{ wanted }} as $wanted
| def seconds: sub("[.][0-9]+"; "") | sub("[+]00:00$"; "Z") | fromdateiso8601;
  def part(name): .configuration | map(select(.name == name)) | if length == 1 then .[0].annotations else error("it has no single \(name)") end;
  def required: $wanted.checks
    + (if part("image").spec | contains("_") then [$wanted.addedPackages] else [] end)
    + [.configuration[] | select((.name | startswith($wanted.ownChecks)) and .annotations.required == true) | .name];
  # A limit that is refused counts like a failure: it is about older certificates of that host class too.
  def refused: [.configuration[] | select(.name == "limits") | .annotations.limits[].code | select(IN($wanted.refusedLimits[]))] != [];
  def is_good:
    (.result == "PASSED" or .result == "WARNED")
    and (part("host").driver | split(".")[0] | IN($wanted.drivers[]))
    and (part("host").gpus | map(.compute_capability) | unique | length == 1 and (.[0] | IN($wanted.capabilities[])))
    and (required - .passedTests == [])
    and (part("certificate").expires | seconds) > now
    and (part("certificate").issued | seconds) <= now + $wanted.toleranceSeconds
    and (part("record").finished | seconds) <= (part("certificate").issued | seconds) + $wanted.toleranceSeconds
    and ($wanted.maxAgeSeconds == null or now - (part("record").finished | seconds) <= $wanted.maxAgeSeconds);
  map(.payload | @base64d | fromjson | select(.predicateType == $wanted.predicateType) | .predicate)
  | map(select(part("certificate").fixture == $wanted.fixture))
  | map({good: is_good, failed: (.result == "FAILED" or refused), class: part("host").class, measured: (part("record").finished | seconds)})
  | . as $all
  | any(
      .[] | select(.good);
      . as $one | all($all[]; (.failed and .class == $one.class and .measured >= $one.measured) | not)
    )
