// SPDX-License-Identifier: Apache-2.0
#include <cairn/kv_buffer.h>
#include <cairn/store.h>

#include <algorithm>
#include <cstdio>

int main() {
  auto store = cairn::Store::Open("example.store", {.create_if_missing = true});
  if (!store.ok()) return std::puts(store.status().ToString().c_str()), 1;

  cairn::ModelSpec spec;  // What one token's KV looks like: 2 layers, 2 heads of 4 bf16 elements.
  spec.identity.name = "toy";
  spec.groups = {cairn::LayerGroup::FullAttention(2, 2, 4, cairn::Dtype::kBf16)};
  auto chat = store->CreateBranch(*store->RegisterModel(spec));

  const std::vector<cairn::TokenId> tokens = {11, 12, 13};
  cairn::KvBuffer kv(spec, tokens.size()), back(spec, tokens.size());
  std::ranges::fill(kv.bytes(), std::byte{7});
  auto length =
      chat->AppendSync({.tokens = tokens, .kv = kv.view()},
                       {.durability = cairn::Durability::kPower});  // Survives power loss.
  auto twin = chat->ForkAt(2, {});  // Shares the first two; copies nothing.
  auto restored = chat->Restore({.into = back.view()});
  const bool equal = restored.ok() && back == kv;
  std::printf("%d tokens, fork of %d, KV %s\n", static_cast<int>(*length),
              static_cast<int>(*twin->length()), equal ? "equal" : "lost");
  return equal ? 0 : 1;
}
