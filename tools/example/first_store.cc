// SPDX-License-Identifier: Apache-2.0
#include <cairn/store.h>

#include <cstdio>
#include <vector>

int main() {
  auto store = cairn::Store::Open("example.store", {.create_if_missing = true});
  if (!store.ok()) return std::puts(store.status().ToString().c_str()), 1;

  cairn::ModelSpec spec;  // What one token's KV looks like: 2 layers, 2 heads of 4 bf16 elements.
  spec.identity.name = "toy";
  spec.groups = {cairn::LayerGroup::FullAttention(2, 2, 4, cairn::Dtype::kBf16)};
  auto model = store->RegisterModel(spec);
  auto chat = store->CreateBranch(*model);

  // KV stays where it lies; a view says where: [layer][plane][token][head][row].
  constexpr int kTokens = 3, kHead = 8, kToken = 2 * kHead, kPlane = kTokens * kToken;
  std::vector<std::byte> kv(2 * 2 * kPlane, std::byte{7}), back(kv.size());
  auto view = [&](std::byte* at, auto&& use) {
    std::byte* k[] = {at, at + 2 * kPlane};
    std::byte* v[] = {at + kPlane, at + 3 * kPlane};
    cairn::PlaneView planes[] = {{.layer_bases = k, .token_stride = kToken, .head_stride = kHead},
                                 {.layer_bases = v, .token_stride = kToken, .head_stride = kHead}};
    cairn::GroupView group{.count = kTokens, .planes = planes};
    return use(cairn::KvView{.groups = {&group, 1}});
  };

  const std::vector<cairn::TokenId> tokens = {11, 12, 13};
  auto length = view(kv.data(), [&](const cairn::KvView& from) {
    return chat->AppendSync({.tokens = tokens, .kv = &from},
                            {.durability = cairn::Durability::kPower});  // Survives power loss.
  });
  auto twin = chat->ForkAt(2, {});  // Shares the first two; copies nothing.
  auto restored =
      view(back.data(), [&](const cairn::KvView& into) { return chat->Restore({.into = &into}); });
  std::printf("%d tokens, fork of %d, KV %s\n", static_cast<int>(*length),
              static_cast<int>(*twin->length()), restored.ok() && back == kv ? "equal" : "lost");
  return restored.ok() && back == kv ? 0 : 1;
}
