// What OpenCL C and CUDA C++ call by different names. All files after this one are the same text in both languages.
//
// Arithmetic is written with the operations below and never with + - * / on floats: each is rounded once, to nearest,
// and nothing may be contracted (docs/spec/profile.md#numbers). CONTRACTED is defined by the drill that shows the
// self-test refusing such a build, and by nothing else.

#ifdef __CUDACC_RTC__

typedef unsigned char uchar;
typedef unsigned int uint;
typedef unsigned long long ulong;

#define KERNEL extern "C" __global__ void
#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define CONSTANT static __device__ const
#define SHARED __shared__
// Of a pointer to shared memory; `SHARED` is of the memory itself.
#define IN_SHARED
#define BARRIER() __syncthreads()

// Work-items of a group are counted along one dimension, groups along two.
#define ITEM ((uint)threadIdx.x)
#define ITEMS ((uint)blockDim.x)
#define GROUP_X ((uint)blockIdx.x)
#define GROUP_Y ((uint)blockIdx.y)
#define GROUPS_X ((uint)gridDim.x)
#define GROUPS_Y ((uint)gridDim.y)

#ifdef CONTRACTED
#define f_add(a, b) ((a) + (b))
#define f_sub(a, b) ((a) - (b))
#define f_mul(a, b) ((a) * (b))
#else
#define f_add(a, b) __fadd_rn(a, b)
#define f_sub(a, b) __fsub_rn(a, b)
#define f_mul(a, b) __fmul_rn(a, b)
#endif
#define f_fma(a, b, c) __fmaf_rn(a, b, c)
#define f_div(a, b) __fdiv_rn(a, b)
#define f_sqrt(a) __fsqrt_rn(a)
#define bits_of(a) __float_as_uint(a)
#define float_of(a) __uint_as_float(a)

#else

#ifdef CONTRACTED
#pragma OPENCL FP_CONTRACT ON
#else
#pragma OPENCL FP_CONTRACT OFF
#endif

#define KERNEL __kernel void
#define FUNCTION static inline
#define GLOBAL __global
#define CONSTANT __constant
#define SHARED __local
#define IN_SHARED __local
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

#define ITEM ((uint)get_local_id(0))
#define ITEMS ((uint)get_local_size(0))
#define GROUP_X ((uint)get_group_id(0))
#define GROUP_Y ((uint)get_group_id(1))
#define GROUPS_X ((uint)get_num_groups(0))
#define GROUPS_Y ((uint)get_num_groups(1))

#define f_add(a, b) ((a) + (b))
#define f_sub(a, b) ((a) - (b))
#define f_mul(a, b) ((a) * (b))
#define f_fma(a, b, c) fma((float)(a), (float)(b), (float)(c))
#define f_div(a, b) ((a) / (b))
#define f_sqrt(a) sqrt((float)(a))
#define bits_of(a) as_uint((float)(a))
#define float_of(a) as_float((uint)(a))

#endif

// A tensor given to a kernel is where its memory begins and how many elements into it the tensor does: parameters and
// gradients lie one after the other in one flat vector. `AT` makes the pointer.
#define TENSOR(type, name) GLOBAL type *name##_memory, ulong name##_at
#define AT(type, name) GLOBAL type *name = name##_memory + name##_at
