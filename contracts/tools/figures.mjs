// The figures of docs/contracts.md: capture probabilities, the lazy validator's inequality, what lies cost.
const choose = (n, k) => { let x = 1; for (let i = 0; i < k; ++i) x = (x * (n - i)) / (i + 1); return x; };
// Probability that more than half of k seats drawn without replacement from n are among the `bad` ones.
export const capture = (n, bad, k) => {
  let p = 0;
  for (let i = Math.floor(k / 2) + 1; i <= k; ++i) p += (choose(bad, i) * choose(n - bad, k - i)) / choose(n, k);
  return p;
};
const percent = (x) => `${(100 * x).toFixed(1)}%`;
console.log("share of dishonest bond    committee 3  committee 5  jury 7  jury 15   (300 seats)");
for (const share of [0.1, 0.2, 1 / 3, 0.45]) {
  console.log(percent(share).padEnd(27), [3, 5, 7, 15].map((k) => percent(capture(300, Math.round(300 * share), k)).padEnd(11)).join("  "));
}
console.log("committee 3 and both juries captured at one third:", percent(capture(300, 100, 3) * capture(300, 100, 7) * capture(300, 100, 15)));
const fee = 0.01, slash = 200, minority = 1, overturn = 50;
console.log(`lazy validator: saves at most the fee ${fee} a file, loses ${slash} a canary: unprofitable above a canary rate of ${(100 * fee) / slash}%`);
console.log(`a lone liar: ${minority} token a file and the fee; a majority that a jury overturns: ${overturn + minority} tokens a seat`);
