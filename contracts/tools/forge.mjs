// Where forge's own binary is: the program that its npm package puts in node_modules/.bin exits with 0 whatever forge
// says, so that a failing test would pass.
import { readdirSync } from "node:fs";
import { join } from "node:path";

export function forge(root) {
  const packages = join(root, "node_modules", "@foundry-rs");
  const platform = readdirSync(packages).find((name) => name.startsWith("forge-"));
  if (!platform) throw new Error(`no forge for this platform in ${packages}: run make setup`);
  return join(packages, platform, "bin", "forge");
}
