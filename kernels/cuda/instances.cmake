# What is compiled of CUDA's templates. Each instantiate() writes a source file into the build folder, so that they compile in parallel:
#   instantiate(FILE HEADER FUNCTION...)    FILE and HEADER are paths in kernels/cuda, FILE without .cu; appends to cuda_sources
function(instantiate file header)
  list(JOIN ARGN ";\ntemplate void " functions)
  file(CONFIGURE OUTPUT cuda/${file}.cu @ONLY CONTENT "#include \"kernels/cuda/${header}\"

namespace minfer::cuda {

template void ${functions};

}  // namespace minfer::cuda
")
  set(cuda_sources ${cuda_sources} ${CMAKE_CURRENT_BINARY_DIR}/cuda/${file}.cu PARENT_SCOPE)
endfunction()

foreach(head 64 80 96 128 192 256 512)
  set(decode "attention_decode<${head}>(Launch&, const DecodeOptionParams&, DType, int32_t)")
  set(prefill "attention_prefill_wgmma<${head}>(Launch&, const PrefillOptionParams&, DType)")
  if(head MATCHES "^(64|128|256)$")  # common heads, of which there are kernels without options too
    list(PREPEND decode "attention_decode<${head}>(Launch&, const DecodeParams&, DType, int32_t)")
    list(PREPEND prefill "attention_prefill_wgmma<${head}>(Launch&, const PrefillParams&, DType)")
  endif()
  instantiate(attention/decode/attention_decode_${head} attention/decode/attention_decode.cuh ${decode})
  if(head LESS 512)
    instantiate(attention/prefill/attention_prefill_wgmma_${head} attention/prefill/attention_prefill_wgmma.cuh ${prefill})
  endif()
endforeach()
set(names bf16 f16 fp8)
set(types __nv_bfloat16 __half __nv_fp8_e4m3)  # of the cache
foreach(name type IN ZIP_LISTS names types)
  instantiate(attention/prefill/attention_prefill_${name} attention/prefill/attention_prefill.cuh
    "attention_prefill<${type}>(Launch&, const PrefillParams&, int32_t)")
  instantiate(attention/prefill/attention_prefill_options_${name} attention/prefill/attention_prefill.cuh
    "attention_prefill<${type}>(Launch&, const PrefillOptionParams&, int32_t)")
  instantiate(attention/prefill/attention_prefill_wide_${name} attention/prefill/attention_prefill_wide.cuh
    "attention_prefill_wide<${type}>(Launch&, const PrefillOptionParams&)")
  if(NOT name STREQUAL "fp8")
    instantiate(attention/latent/attention_latent_${name} attention/latent/attention_latent.cuh
      "attention_latent<${type}>(Launch&, const LatentParams&)")
  endif()
endforeach()

foreach(type q4_0 q8_0 q4_k q5_k q6_k mxfp4 fp8 lut4)  # ExpertTypes in weights/weight_types.h
  instantiate(moe/stream/expert_stream_${type} moe/stream/expert_tile_launch.cuh
    "launch_expert_tiles<DType::${type}>(Launch&, const MoeProduct&)")
endforeach()
set(names single gate_up)
set(matrices 1 2)
foreach(name count IN ZIP_LISTS names matrices)
  instantiate(moe/moe_${name}_strips moe/moe_strip_product.cuh "moe_strip_product<${count}>(Launch&, const MoeProduct&, int)")
  instantiate(moe/expert_strip_${name} moe/expert_strip.cuh "expert_strip_product<${count}>(Launch&, const MoeProduct&)")
endforeach()

foreach(type q4_0 q8_0 q4_k q5_k q6_k mxfp4 fp8 q4_1 q5_0 q5_1 q2_k q3_k iq4_nl iq4_xs lut4)  # TiledTypes in weights/weight_types.h
  instantiate(product/tile_stream/tile_stream_${type} product/tile_stream/tile_stream_launch.cuh
    "launch_tile_stream<DType::${type}>(Launch&, const ProductArgs&, const StreamPlan&)")
endforeach()
set(names 64_rows 128_rows gate_up)
set(forms "1, false" "2, false" "2, true")
foreach(name form IN ZIP_LISTS names forms)
  instantiate(product/stream/stream_${name} product/stream/stream_launch.cuh
    "launch_stream_of<${form}>(Launch&, const ProductArgs&, const StreamPlan&)")
endforeach()
set(names 64_rows 128_rows 256_rows gate_up)
set(forms "1, 1, false" "2, 1, false" "2, 2, false" "2, 2, true")
foreach(name form IN ZIP_LISTS names forms)
  instantiate(product/fp8/fp8_stream_${name} product/fp8/fp8_stream_launch.cuh
    "launch_fp8_stream<${form}>(Launch&, const Fp8Product&, const StreamPlan&)")
endforeach()
instantiate(product/fp8/fp8_gemm product/fp8/fp8_gemm_launch.cuh "fp8_gemm<false>(Launch&, const Fp8Product&, const Fp8GemmPlan&)")
instantiate(product/fp8/fp8_gemm_gate_up product/fp8/fp8_gemm_launch.cuh "fp8_gemm<true>(Launch&, const Fp8Product&, const Fp8GemmPlan&)")
